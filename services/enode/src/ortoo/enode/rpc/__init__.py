"""What the enode offers on the wire, to snodes and to its other members: decode, call the rooms below, encode.

In: requests of EnodeService, MemberService and EnodeMembersService. Out: their answers. `app`, `reigns` and the
offline `elect` import it.
"""
