"""Schemas of messages, compiled to the Python code that encodes and decodes them, and the frames they travel in.

``schema`` is how a message is declared, ``frames`` is the door for who sends and receives. It knows no single API.
"""
