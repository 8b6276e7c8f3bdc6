package gateway

import (
	"strings"
	"time"

	"github.com/headgate/headgate/internal/failure"
)

// texts are what the model reads, by reason. Each states the fact, names the next action, and says
// when repeating is pointless. The placeholders {server}, {tool}, {seconds} and {limit} are all that is ever
// filled in: nothing from the network reaches a text.
var texts = map[failure.Reason]string{
	failure.Unavailable: "Tool {tool} was not started: its server {server} cannot be reached at the moment. Nothing was sent, so nothing has happened. " +
		"Try the same call once more after a few seconds; if it fails again, tell the user that server {server} is not available.",
	failure.BreakerOpen: "Tool {tool} was not started: its server {server} has failed several times in a row and is given a pause. Nothing was sent, so nothing has happened. " +
		"Try the same call once more after {seconds}; if it fails again, tell the user that server {server} is not available.",
	failure.Overloaded: "Tool {tool} was not started: its server {server} is turning requests away because it is too busy. Nothing has happened. " +
		"Wait {seconds}, then try the same call once more; if it is turned away again, tell the user.",
	failure.CredentialsRefused: "Tool {tool} was not run: its server {server} does not accept the credentials it is configured with. Repeating the call will not help. " +
		"Tell the user that whoever operates this gateway has to renew the credentials for server {server}.",
	failure.RateLimited: "Tool {tool} was not started: {limit}. Nothing was sent. Wait {seconds} before calling again.",
	failure.ConcurrencyLimited: "Tool {tool} was not started: {limit}. Nothing was sent. " +
		"Wait for one of the calls to finish, or {seconds}, before calling again.",
}

// The texts for an outcome that is not known, by whether the call may be repeated.
var (
	timeoutNotSent = "Tool {tool} was not started: its server {server} took no request within {seconds}. Nothing was sent, so nothing has happened. " +
		"Try the same call once more; if it fails again, tell the user that server {server} does not respond."
	timeoutRepeatable = "Tool {tool} gave no answer: its server {server} did not finish within {seconds}. The tool is safe to repeat: try the same call once more; " +
		"if it takes too long again, tell the user."
	timeoutUnknown = "The outcome of this call is unknown: tool {tool} was sent to server {server}, which did not finish within {seconds}. The action may or may not have happened. " +
		"Do not repeat the call. Check the current state first, with a tool that only reads, or ask the user."
	lostRepeatable = "Tool {tool} gave no answer: the connection to its server {server} was lost after the call was sent. The tool is safe to repeat: try the same call once more; " +
		"if it fails again, tell the user."
	lostUnknown = "The outcome of this call is unknown: the connection to server {server} was lost after tool {tool} was sent to it. The action may or may not have happened. " +
		"Do not repeat the call. Check the current state first, with a tool that only reads, or ask the user."
)

// readTexts are what a program, and the person before it, reads of a prompt, a resource or a completion
// that could not be had. All of them are readings, which may be repeated.
var readTexts = map[failure.Reason]string{
	failure.Unavailable: "{what} could not be had: server {server} cannot be reached at the moment. Try again after a few seconds.",
	failure.BreakerOpen: "{what} could not be had: server {server} has failed several times in a row and is given a pause. Try again after {seconds}.",
	failure.Overloaded:  "{what} could not be had: server {server} is turning requests away because it is too busy. Try again after {seconds}.",
	failure.CredentialsRefused: "{what} could not be had: server {server} does not accept the credentials it is configured with. Trying again will not help; " +
		"whoever operates this gateway has to renew the credentials.",
	failure.Timeout:           "{what} could not be had: server {server} did not answer within {seconds}. It may be tried again.",
	failure.ConnectionLost:    "{what} could not be had: the connection to server {server} was lost before it answered. It may be tried again.",
	failure.BadUpstreamAnswer: "{what} could not be had: the answer of server {server} is not valid MCP.",
}

// readFailureText renders the text for a failure of a reading.
func readFailureText(f *failure.Failure, what string) string {
	wait := f.RetryAfter
	if f.Reason == failure.Timeout {
		wait = f.Limit
	}
	if wait == 0 {
		wait = defaultWait
	}
	return strings.NewReplacer("{server}", f.Server, "{what}", what, "{seconds}", seconds(wait)).Replace(readTexts[f.Reason])
}

// defaultWait is the pause that a text names when nobody has said how long to wait.
const defaultWait = 5 * time.Second

// failureText renders the text for a failure of a tool under its exposed name.
func failureText(f *failure.Failure, tool string, repeatable bool) string {
	text := texts[f.Reason]
	wait := f.RetryAfter
	if wait == 0 {
		wait = defaultWait
	}
	switch f.Reason {
	case failure.Timeout:
		wait = f.Limit
		text = pick(f.Outcome == failure.NotStarted, timeoutNotSent, pick(repeatable, timeoutRepeatable, timeoutUnknown))
	case failure.ConnectionLost:
		text = pick(repeatable, lostRepeatable, lostUnknown)
	}
	return strings.NewReplacer("{server}", f.Server, "{tool}", tool, "{limit}", f.Bound, "{seconds}", seconds(wait)).Replace(text)
}

func pick(cond bool, yes, no string) string {
	if cond {
		return yes
	}
	return no
}
