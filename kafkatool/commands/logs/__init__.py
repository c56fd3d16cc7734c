"""``kt logs``: merge, timeline and report of state-change logs.

Door: ``group``. Each command parses its flags, runs jobs of ``core/statelog`` in a ``LogSession`` and renders what they
return: the report from plain data (``report_data``) as text (``report_text``) or as a page (``page``). No line of a log
is read or interpreted here.
"""
