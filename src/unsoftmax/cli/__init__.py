"""The command line: one file per command; each parses, calls the library, prints.

app          the application: global options, the list of commands
flags        options of commands, from flags and from the file of --config
targets      TARGET: a saved model, an ONNX file, a Python factory, an address
settings     what options mean: oracle, learner, budget, files
exits        errors as one sentence and an exit code
demo         `unsoftmax demo`
estimate     `unsoftmax estimate TARGET`
recover      `unsoftmax recover TARGET`
diagnose     `unsoftmax diagnose TARGET`
compare      `unsoftmax compare TARGET REFERENCE`
audit        `unsoftmax audit TARGET`
fit          `unsoftmax fit LOG`
width        `unsoftmax width URL`
exposure     `unsoftmax exposure URL`
ledger       `unsoftmax ledger show|export`
report       `unsoftmax report FILES...`
serve        `unsoftmax serve`
theory       `unsoftmax theory`
experiments  `unsoftmax experiments`
"""
