"""What a run leaves behind, as plain data that is saved and read without the code that made it.

recovery    the model, what it cost, what is certain about it
scope       what was asked, which is what a certificate is about
evidence    what a recovery showed, small enough to travel with an audit
comparison  whether a target is its reference, and what changed
files       any saved result, by the format its file names
access      what an attacker sees, and what closes it
references  what findings are called in MITRE ATLAS, OWASP and AISVS
audit       the cells of the ladder, what they cost an attacker, and what follows
"""
