"""What the tools do: check, plan, write, watch. They return results, print nothing and know no click."""
