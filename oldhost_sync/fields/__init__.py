"""The fields that come from outside: one parser for each, used at every door (docs/fields.md is the documented form).

A door is a place where somebody else's text comes in: the API's bodies and query parameters, `record_change`, the
writer's updates and signals, files and options of the command line. Whatever is not the documented form is refused with
the same words at each of them. The parsers are pure, so the workflow uses them, too.
"""
