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

// callersRefused is the text where the credentials are not Headgate's but the caller's.
var callersRefused = "Tool {tool} was not run: its server {server} does not accept the credentials of the user on whose behalf it was called. Repeating the call will not help. " +
	"Tell the user that they have to sign in again, or have to be given access to server {server}."

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
	case failure.CredentialsRefused:
		text = pick(f.Callers, callersRefused, text)
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
