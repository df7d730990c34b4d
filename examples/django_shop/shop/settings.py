"""Settings of the shop: only those that the example needs."""

import os

SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "for the example only")
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("SHOP_DATABASE", "shop.sqlite")}
}
ORTOO_ADDRESS = os.environ.get("ORTOO_ADDRESS", "localhost:8081")
