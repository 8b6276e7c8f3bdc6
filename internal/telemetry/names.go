package telemetry

import "go.opentelemetry.io/otel/attribute"

// The names of the OpenTelemetry semantic conventions for MCP (status "Development"). They are written down here,
// so that a change of the conventions is a change of this file.
const (
	keyMethod     = attribute.Key("mcp.method.name")
	keyVersion    = attribute.Key("mcp.protocol.version")
	keySession    = attribute.Key("mcp.session.id")
	keyTool       = attribute.Key("gen_ai.tool.name")
	keyOperation  = attribute.Key("gen_ai.operation.name")
	keyRequestID  = attribute.Key("jsonrpc.request.id")
	keyTransport  = attribute.Key("network.transport")
	keyStatusCode = attribute.Key("rpc.response.status_code")
	keyErrorType  = attribute.Key("error.type")

	executeTool = "execute_tool"
	methodCall  = "tools/call"

	metricServerOperation = "mcp.server.operation.duration"
	metricClientOperation = "mcp.client.operation.duration"
	metricServerSession   = "mcp.server.session.duration"
	metricClientSession   = "mcp.client.session.duration"
)

// Values of network.transport.
const (
	TransportPipe = "pipe" // stdio, and servers in process
	TransportTCP  = "tcp"  // HTTP
)

// Headgate's own names.
const (
	keyUpstream    = attribute.Key("headgate.upstream")
	keyTeam        = attribute.Key("headgate.team")
	keyOutcome     = attribute.Key("headgate.outcome")
	keyAttempt     = attribute.Key("headgate.attempt")
	keyRetryReason = attribute.Key("headgate.retry.reason")
	keyQueueWait   = attribute.Key("headgate.queue.wait")
	keyBreaker     = attribute.Key("headgate.breaker.state")
	keyFault       = attribute.Key("headgate.hop.fault")
	keyRule        = attribute.Key("headgate.rule")
	keyResult      = attribute.Key("headgate.result")
	keyLimit       = attribute.Key("headgate.limit")
	keySide        = attribute.Key("headgate.side")
	keyReason      = attribute.Key("headgate.reason")

	metricCalls          = "headgate.calls"
	metricInFlight       = "headgate.requests.in_flight"
	metricQueue          = "headgate.queue.duration"
	metricRetries        = "headgate.upstream.retries"
	metricBreaker        = "headgate.breaker.state"
	metricUp             = "headgate.upstream.up"
	metricTools          = "headgate.catalogue.tools"
	metricChanges        = "headgate.catalogue.changes"
	metricFindings       = "headgate.catalogue.findings"
	metricReloads        = "headgate.config.reloads"
	metricReloadDuration = "headgate.config.reload.duration"
	metricReloadTime     = "headgate.config.reload.time"
	metricLimits         = "headgate.limits.hit"
	metricStreams        = "headgate.streams.dropped"
	metricSessions       = "headgate.sessions"
	metricTurnedAway     = "headgate.requests.turned_away"
	metricMessages       = "headgate.messages.dropped"
	metricSpansDropped   = "headgate.telemetry.spans.dropped"

	eventQueued   = "headgate.queued"
	eventBreaker  = "headgate.breaker"
	eventSession  = "headgate.session.reinitialise"
	eventProgress = "mcp.progress"
)

// other stands for every value that somebody else chooses and that is not known, or is one too many.
const other = "_OTHER"

// knownMethods are the methods that appear by name.
func knownMethod(method string) string {
	switch method {
	case "tools/call", "tools/list", "server/discover", "initialize", "ping", "logging/setLevel", "subscriptions/listen",
		"prompts/list", "prompts/get", "resources/list", "resources/templates/list", "resources/read", "resources/subscribe",
		"resources/unsubscribe", "completion/complete", "tasks/get", "tasks/result", "tasks/list", "tasks/cancel":
		return method
	}
	return other
}
