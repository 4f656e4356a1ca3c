"""The lemmas of docs/theory/notes, one test file per note and one test per lemma."""
