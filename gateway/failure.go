package gateway

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// answer is what a request comes to: a result, an error, or nothing at all. Exactly one of result
// and err is set unless silent is.
type answer struct {
	result jsontext.Value
	err    jsontext.Value
	status int  // HTTP status for modern clients; 0 means 200
	silent bool // nothing is sent: the client cancelled, or, with a result, everything has been said
	plain  bool // result is known not to say isError: true
	// reply is what result was cut out of; its memory is given back once the answer is written.
	reply *upstream.Reply
	// list is the whole list that result is, and charge is told of what compressing it costs; nil for anything else.
	list   *listed
	charge func(bytes int)
	// stepUp are the scopes that a caller has to be granted first. Over HTTP they make a challenge with
	// status 403 in both eras.
	stepUp []string
	failed *failure.Failure // what Headgate answers for in its own name; nil for everything else
}

// This file is the failure table: the only place where Headgate makes an error of its own. A program
// at fault gets a JSON-RPC error; a fact that the model can use is a result with isError: true.

// protocolError answers with a JSON-RPC error in Headgate's own name.
func protocolError(code int64, message string, data jsontext.Value, status int) answer {
	return answer{err: wire.ErrorObject(code, message, data), status: status}
}

// unknownTool is the answer for a name that does not exist and for one that this caller may not see;
// the two are the same bytes.
func unknownTool(name string) answer {
	return protocolError(wire.CodeInvalidParams, "Unknown tool: "+clipName(name), nil, http.StatusOK)
}

// clipName bounds what an answer repeats of a name that a client gave.
func clipName(name string) string {
	const longest = 512 // no exposed name is nearly as long
	if len(name) > longest {
		name = strings.ToValidUTF8(name[:longest], "") + "…"
	}
	return name
}

// unknownPrompt and unknownTemplate are for prompts and templates what unknownTool is for tools.
func unknownPrompt(name string) answer {
	return protocolError(wire.CodeInvalidParams, "Unknown prompt: "+clipName(name), nil, http.StatusOK)
}

func unknownTemplate(uri string) answer {
	return protocolError(wire.CodeInvalidParams, "Unknown resource template: "+clipName(uri), nil, http.StatusOK)
}

// unknownResource is the same for resources, whose error has another code in each era.
func unknownResource(uri string, era upstream.Era) answer {
	data := wire.AppendString([]byte(`{"uri":`), clipName(uri))
	return protocolError(notFoundCode(era), "Resource not found", append(data, '}'), http.StatusOK)
}

// tooManyWatched refuses a legacy client one resource more to watch.
func tooManyWatched() answer {
	return protocolError(wire.CodeInvalidRequest, "too many resources are subscribed to; unsubscribe from those that are not needed", nil, http.StatusOK)
}

// notWatched is the answer where a resource cannot be watched: its server does not offer it.
func notWatched(uri string) answer {
	data := wire.AppendString([]byte(`{"uri":`), clipName(uri))
	return protocolError(wire.CodeMethodNotFound, "The server of this resource does not offer subscriptions", append(data, '}'), http.StatusOK)
}

// insufficientScope sends the caller for more scopes, all of them at once (2026-07-28, basic/
// authorization, "Scope Challenge Handling").
func insufficientScope(scopes []string) answer {
	a := protocolError(wire.CodeInvalidRequest, "Insufficient scope: "+strings.Join(scopes, " "), nil, http.StatusForbidden)
	a.stepUp = scopes
	return a
}

// overLimit is the failure of a call that a limit keeps from being made.
func overLimit(e *authz.LimitError, server string) *failure.Failure {
	f := &failure.Failure{Server: server, Reason: failure.RateLimited, Outcome: failure.NotStarted, RetryAfter: e.RetryAfter, Bound: e.Error()}
	if e.Kind == authz.LimitConcurrency {
		f.Reason = failure.ConcurrencyLimited
	}
	return f
}

func invalidParams(text string) answer {
	return protocolError(wire.CodeInvalidParams, text, nil, http.StatusBadRequest)
}

func methodNotFound(method string) answer {
	return protocolError(wire.CodeMethodNotFound, "Method not found: "+clipMethod(method), nil, http.StatusNotFound)
}

// unsupportedVersion is UnsupportedProtocolVersionError (2026-07-28, basic/versioning).
func unsupportedVersion(requested string) answer {
	if len(requested) > 64 {
		requested = requested[:64]
	}
	b := appendStrings([]byte(`{"supported":`), supportedVersions())
	b = append(b, `,"requested":`...)
	b = wire.AppendString(b, requested)
	return protocolError(wire.CodeUnsupportedVersion, "Unsupported protocol version", append(b, '}'), http.StatusBadRequest)
}

func headerMismatch(text string) answer {
	return protocolError(wire.CodeHeaderMismatch, "Header mismatch: "+text, nil, http.StatusBadRequest)
}

// handshakeFirst is the answer to a request that belongs to neither era.
func handshakeFirst() answer {
	return protocolError(wire.CodeInvalidRequest, "send initialize first, or speak protocol version "+modernVersion, nil, http.StatusBadRequest)
}

func notAcceptable(text string) answer {
	return protocolError(wire.CodeInvalidRequest, text, nil, http.StatusNotAcceptable)
}

// incident answers for a bug in Headgate; the id finds the log line.
func incident() (id string, a answer) {
	id = rand.Text()[:12]
	f := &failure.Failure{Reason: failure.Internal, Outcome: failure.Unknown}
	data := jsontext.Value(`{"headgate":` + string(marker(f, false)) + `,"incident":"` + id + `"}`)
	a = protocolError(wire.CodeInternal, "Internal error in the gateway; incident "+id+" in its log", data, http.StatusInternalServerError)
	a.failed = f
	return id, a
}

// unrecorded answers for a call that is not sent because its audit record cannot be written; the incident
// finds the log line.
func unrecorded(server, incident string) answer {
	f := &failure.Failure{Server: server, Reason: failure.Internal, Outcome: failure.NotStarted}
	data := jsontext.Value(`{"headgate":` + string(marker(f, false)) + `,"incident":"` + incident + `"}`)
	a := protocolError(wire.CodeInternal, "The call was not sent: the gateway cannot record it; incident "+incident+" in its log", data, http.StatusInternalServerError)
	a.failed = f
	return a
}

// malformed is the answer to bytes that are no message; err is a *wire.Error.
func malformed(err error) []byte {
	e := &wire.Error{Code: wire.CodeInternal, Message: "the message could not be read"}
	errors.As(err, &e)
	return wire.AppendError(nil, e.ID, wire.ErrorObject(e.Code, e.Message, nil))
}

// refusal is the answer to a message that is not served. id is that of the request, or "" for what
// never became one.
func refusal(id wire.ID, text string) []byte {
	return wire.AppendError(nil, id, wire.ErrorObject(wire.CodeInvalidRequest, text, nil))
}

// refuse answers an HTTP request that never became an MCP one, and counts it.
func (g *Gateway) refuse(w http.ResponseWriter, why telemetry.Refusal, status int, text string) {
	g.refuseID(w, why, status, "", text)
}

// refuseID answers an MCP request that is not served for reasons of HTTP, and counts it.
func (g *Gateway) refuseID(w http.ResponseWriter, why telemetry.Refusal, status int, id wire.ID, text string) {
	g.opts.Telemetry.TurnedAway(why, telemetry.TransportTCP)
	writeJSON(w, status, refusal(id, text))
}

func (g *Gateway) methodNotAllowed(w http.ResponseWriter, allow string) {
	w.Header().Set("Allow", allow)
	g.refuse(w, telemetry.RefusedMethod, http.StatusMethodNotAllowed, "method not allowed here; use "+allow)
}

// failCall answers for a tools/call that Headgate could not carry to its end.
func failCall(f *failure.Failure, t *tool, era upstream.Era) answer {
	retryable := retryable(f, t.repeatable)
	mark := marker(f, retryable)
	if f.Reason == failure.BadUpstreamAnswer {
		a := protocolError(wire.CodeInternal, failureText(f, t), jsontext.Value(`{"headgate":`+string(mark)+`}`), http.StatusOK)
		a.failed = f
		return a
	}
	b := []byte(`{`)
	if era == upstream.Modern {
		b = append(b, `"resultType":"complete",`...)
	}
	b = append(b, `"content":[{"type":"text","text":`...)
	b = wire.AppendString(b, failureText(f, t))
	b = append(b, `}],"isError":true,"_meta":{"dev.headgate/failure":`...)
	b = append(b, mark...)
	b = append(b, `}}`...)
	return answer{result: b, failed: f}
}

// failRead answers for a reading that Headgate could not carry to its end. There is no result that could say
// so to a model, so it is an error; what is the subject of its text.
func failRead(f *failure.Failure, what string) answer {
	data := jsontext.Value(`{"headgate":` + string(marker(f, retryable(f, true))) + `}`)
	a := protocolError(wire.CodeInternal, readFailureText(f, what), data, http.StatusOK)
	a.failed = f
	return a
}

// invalidTask is the answer to a request about a task that its caller does not have (2025-11-25, basic/utilities/
// tasks, "Error Handling").
func invalidTask(text string) answer {
	return protocolError(wire.CodeInvalidParams, text+": params.taskId", nil, http.StatusOK)
}

// ambiguous is the answer to a method of an extension that more than one server has.
func ambiguous(method string) answer {
	a := methodNotFound(method)
	a.err = wire.ErrorObject(wire.CodeMethodNotFound, "Method not found: more than one server has the extension of "+clipMethod(method), nil)
	return a
}

// failExtension answers for a request of an extension that Headgate could not carry to its end.
func failExtension(f *failure.Failure, method string) answer {
	data := jsontext.Value(`{"headgate":` + string(marker(f, retryable(f, false))) + `}`)
	text := "Server " + f.Server + " gave no answer to " + clipMethod(method) + ": " + strings.ReplaceAll(string(f.Reason), "_", " ")
	a := protocolError(wire.CodeInternal, text, data, http.StatusOK)
	a.failed = f
	return a
}

func clipMethod(method string) string {
	if len(method) > 128 {
		return method[:128] + "…"
	}
	return method
}

// retryable says whether a program may send the same call again without doing harm and with a
// chance of success.
func retryable(f *failure.Failure, repeatable bool) bool {
	switch f.Reason {
	case failure.CredentialsRefused, failure.BadUpstreamAnswer, failure.InvalidArguments, failure.InvalidResult, failure.InputRefused, failure.Guarded, failure.Internal:
		return false
	}
	return f.Outcome != failure.Unknown || repeatable
}

// marker is the object by which a program tells Headgate's word from an upstream's.
func marker(f *failure.Failure, retryable bool) jsontext.Value {
	b := []byte(`{`)
	if f.Server != "" {
		b = append(b, `"server":`...)
		b = wire.AppendString(b, f.Server)
		b = append(b, ',')
	}
	b = fmt.Appendf(b, `"reason":%q,"outcome":%q,"retryable":%t`, f.Reason, f.Outcome, retryable)
	if f.RetryAfter > 0 {
		b = fmt.Appendf(b, `,"retryAfterMs":%d`, f.RetryAfter.Milliseconds())
	}
	return append(b, '}')
}

// seconds writes a duration for a reader, rounded up to whole seconds.
func seconds(d time.Duration) string {
	n := int64((d + time.Second - 1) / time.Second)
	if n == 1 {
		return "1 second"
	}
	return fmt.Sprintf("%d seconds", n)
}
