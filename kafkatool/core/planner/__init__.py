"""Plans that move as little as possible (RSN-26X to RSN-29X). Pure: they read no ZooKeeper, no clock, no randomness.

``minimal`` lays out the plan, on the search of ``exchange``; ``figures`` says what a plan means for each broker.
"""
