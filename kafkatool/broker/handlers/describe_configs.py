"""DescribeConfigs (key 32), versions 0-4: the settings of topics and of this broker (KIP-133, KIP-226, KIP-569).

Any broker tells of a topic, with its own defaults; a broker's settings are asked of that broker.
"""

from collections.abc import Collection

from kafkatool.broker.administration.configs import TOPIC, ConfigAdmin
from kafkatool.broker.administration.topics import AdminError
from kafkatool.broker.handlers.authorization import REFUSALS, Each, Resource
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.handlers.error_reply import code_of
from kafkatool.broker.settings.description import BrokerOverrides, ConfigSource, Setting
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.model.acls import Operation, ResourceType
from kafkatool.core.protocol.messages.describe_configs import (
    API,
    DescribeConfigsEntry,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def _needed(resource: DescribeConfigsResource) -> Resource:
    if resource.resource_type == TOPIC:
        operation, kind, name = Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, resource.resource_name
        return Resource(operation, kind, name, REFUSALS[kind][1])
    return Resource(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, text=REFUSALS[ResourceType.CLUSTER][1])


@Served(API, versions=(0, 4), asks=(Each("resources", _needed),))
def handle(request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResponse:
    admin = call.context.config_admin
    resources = {(r.resource_type, r.resource_name): r for r in request.resources}  # each once, as in Kafka
    topics, dynamic = admin.topics_among(resources), admin.broker_overrides()
    results = [_describe(admin, one, topics, dynamic, request) for one in resources.values()]
    return DescribeConfigsResponse(results=results)


def _describe(
    admin: ConfigAdmin,
    resource: DescribeConfigsResource,
    topics: Collection[str],
    dynamic: BrokerOverrides,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    wanted = None if resource.configuration_keys is None else frozenset(resource.configuration_keys)
    try:
        settings = admin.describe(kind, name, topics, dynamic)
    except (AdminError, ZooKeeperError) as e:
        return DescribeConfigsResult(
            error_code=code_of(e), error_message=str(e), resource_type=kind, resource_name=name
        )
    configs = [_entry(s, request) for s in settings if wanted is None or s.name in wanted]
    return DescribeConfigsResult(resource_type=kind, resource_name=name, configs=configs)


def _entry(setting: Setting, request: DescribeConfigsRequest) -> DescribeConfigsEntry:
    synonyms = setting.synonyms if request.include_synonyms else ()
    return DescribeConfigsEntry(
        name=setting.name,
        value=setting.value,
        read_only=setting.read_only,
        is_default=setting.source is ConfigSource.DEFAULT,
        config_source=setting.source,
        is_sensitive=setting.is_sensitive,
        synonyms=[DescribeConfigsSynonym(name=n, value=v, source=s) for n, v, s in synonyms],
        config_type=setting.type,
        documentation=setting.documentation if request.include_documentation else None,
    )
