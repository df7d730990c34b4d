"""Who calls and what they may: users, rights, limits, interceptors. Requests in, refusals out."""
