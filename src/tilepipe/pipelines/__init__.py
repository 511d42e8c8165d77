"""The pipeline types: barriers, rings, input tiles, payloads, tile schedulers. Each file is one
idea.
"""
