"""`ortoo doctor`: addresses in, findings out: what is wrong, why, what to do about it. Its command imports it."""
