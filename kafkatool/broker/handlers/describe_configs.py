"""DescribeConfigs (key 32), versions 0-2: the settings of topics and of this broker (KIP-133, KIP-226).

Any broker tells of a topic, with its own defaults; a broker's settings are asked of that broker.
"""

from kafkatool.broker.administration.configs import ConfigAdmin
from kafkatool.broker.administration.topics import AdminError
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.handlers.error_reply import code_of
from kafkatool.broker.settings.description import ConfigSource, Setting
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.protocol.messages.describe_configs import (
    API,
    DescribeConfigsEntry,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


@Served(API, versions=(0, 2))
def handle(request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResponse:
    admin = call.context.config_admin
    resources = {(r.resource_type, r.resource_name): r for r in request.resources}  # each once, as in Kafka
    results = [_describe(admin, resource, synonyms=request.include_synonyms) for resource in resources.values()]
    return DescribeConfigsResponse(results=results)


def _describe(admin: ConfigAdmin, resource: DescribeConfigsResource, *, synonyms: bool) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    wanted = None if resource.configuration_keys is None else frozenset(resource.configuration_keys)
    try:
        settings = admin.describe(kind, name)
    except (AdminError, ZooKeeperError) as e:
        return DescribeConfigsResult(
            error_code=code_of(e), error_message=str(e), resource_type=kind, resource_name=name
        )
    configs = [_entry(s, synonyms=synonyms) for s in settings if wanted is None or s.name in wanted]
    return DescribeConfigsResult(resource_type=kind, resource_name=name, configs=configs)


def _entry(setting: Setting, *, synonyms: bool) -> DescribeConfigsEntry:
    return DescribeConfigsEntry(
        name=setting.name,
        value=setting.value,
        read_only=setting.read_only,
        is_default=setting.source is ConfigSource.DEFAULT,
        config_source=setting.source,
        is_sensitive=False,
        synonyms=[DescribeConfigsSynonym(name=n, value=v, source=s) for n, v, s in setting.synonyms if synonyms],
    )
