"""The wire format: conversion of types to protobuf and Arrow bytes, and of errors to codes.

A module holds both directions of a conversion, for the server and the client. `status` is the only
table of errors and gRPC status codes.

May import: v1, errors, cql, streams, queries, engine.
"""
