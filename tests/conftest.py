"""What every test gets: properties that never fail for being slow, and that print how to replay them."""

from hypothesis import settings

# The machine may be busy, so time decides nothing; a failing example prints the line that replays it.
settings.register_profile("ortoo", deadline=None, max_examples=60, print_blob=True)
settings.load_profile("ortoo")
