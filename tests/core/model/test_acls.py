"""What an ACL may be about."""

import pytest

from kafkatool.core.model.acls import (
    Binding,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    check_binding,
)


@pytest.mark.spec("SEC-88")
@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\nb", "a\0"])
def test_a_name_that_no_node_can_have_is_refused_before_anything_is_written(name: str) -> None:
    entry = Entry("User:a", "*", Operation.READ, Permission.ALLOW)
    with pytest.raises(ValueError, match="invalid resource name"):
        check_binding(Binding(ResourcePattern(ResourceType.GROUP, name, PatternType.LITERAL), entry))
    for fine in ("*", "...", ".a", "gruppe ü"):
        check_binding(Binding(ResourcePattern(ResourceType.GROUP, fine, PatternType.LITERAL), entry))
