package gateway

import (
	"strings"
	"time"

	"github.com/headgate/headgate/internal/failure"
)

// text is what the model reads of a failure. fact states what is known, advice the next action and whether
// repeating is pointless. The configuration can replace a text, but where the outcome is unknown, or where the
// work may be done already, the fact stays before what replaces the advice: no wording of an operator can hide it.
type text struct{ fact, advice string }

// texts are by reason, and by case of a reason where the text depends on what is known of the outcome. The
// placeholders {server}, {tool}, {seconds} and {limit} are all that is ever filled in: nothing from the network
// reaches a text.
var texts = map[string]text{
	"unavailable": {advice: "Tool {tool} was not started: its server {server} cannot be reached at the moment. Nothing was sent, so nothing has happened. " +
		"Try the same call once more after a few seconds; if it fails again, tell the user that server {server} is not available."},
	"breaker_open": {advice: "Tool {tool} was not started: its server {server} has failed several times in a row and is given a pause. Nothing was sent, so nothing has happened. " +
		"Try the same call once more after {seconds}; if it fails again, tell the user that server {server} is not available."},
	"overloaded": {advice: "Tool {tool} was not started: its server {server} is turning requests away because it is too busy. Nothing has happened. " +
		"Wait {seconds}, then try the same call once more; if it is turned away again, tell the user."},
	"credentials_refused": {advice: "Tool {tool} was not run: its server {server} does not accept the credentials it is configured with. Repeating the call will not help. " +
		"Tell the user that whoever operates this gateway has to renew the credentials for server {server}."},
	"credentials_refused_caller": {advice: "Tool {tool} was not run: its server {server} does not accept the credentials of the user on whose behalf it was called. Repeating the call will not help. " +
		"Tell the user that they have to sign in again, or have to be given access to server {server}."},
	"rate_limited": {advice: "Tool {tool} was not started: {limit}. Nothing was sent. Wait {seconds} before calling again."},
	"concurrency_limited": {advice: "Tool {tool} was not started: {limit}. Nothing was sent. " +
		"Wait for one of the calls to finish, or {seconds}, before calling again."},
	"timeout_not_started": {advice: "Tool {tool} was not started: its server {server} took no request within {seconds}. Nothing was sent, so nothing has happened. " +
		"Try the same call once more; if it fails again, tell the user that server {server} does not respond."},
	"timeout_repeatable": {
		fact:   "Tool {tool} gave no answer: its server {server} did not finish within {seconds}.",
		advice: "The tool is safe to repeat: try the same call once more; if it takes too long again, tell the user."},
	"timeout_unknown": {
		fact:   "The outcome of this call is unknown: tool {tool} was sent to server {server}, which did not finish within {seconds}. The action may or may not have happened.",
		advice: "Do not repeat the call. Check the current state first, with a tool that only reads, or ask the user."},
	"connection_lost_repeatable": {
		fact:   "Tool {tool} gave no answer: the connection to its server {server} was lost after the call was sent.",
		advice: "The tool is safe to repeat: try the same call once more; if it fails again, tell the user."},
	"connection_lost_unknown": {
		fact:   "The outcome of this call is unknown: the connection to server {server} was lost after tool {tool} was sent to it. The action may or may not have happened.",
		advice: "Do not repeat the call. Check the current state first, with a tool that only reads, or ask the user."},
	"bad_upstream_answer": {fact: "The answer of server {server} to tool {tool} is not valid MCP"},
	"guarded": {
		fact: "Tool {tool} was not sent to server {server} again: the same call was made a short while ago and its outcome is unknown, so the action may have happened already.",
		advice: "Check the current state first, with a tool that only reads. If the action has not happened and must be done, wait {seconds} and make the same call then, " +
			"or change an argument, so that it is another call. If the state cannot be checked, ask the user."},
	"invalid_arguments": {advice: "Tool {tool} of server {server} was not started: the arguments do not fit its input schema. Nothing was sent, so nothing has happened. " +
		"Correct the arguments named here and call again."},
	"input_refused": {advice: "Tool {tool} was not finished: its server {server} asked the client for more, and the client did not give it: the user may have declined, or did not answer in time. " +
		"Do not repeat the call by yourself. Tell the user what is missing, and call again only if they want that."},
	"invalid_result": {
		fact:   "Tool {tool} was run by server {server}, which reports no error; its answer is withheld, since it does not fit the tool's output schema. The action has most likely been done.",
		advice: "Do not repeat the call. Check the current state with another tool if the answer is needed, and tell the user that server {server} has to be repaired."},
}

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

// readCallerRefused is the text where the credentials are not Headgate's but the caller's.
const readCallerRefused = "{what} could not be had: server {server} does not accept the credentials of the user on whose behalf it was asked. " +
	"Trying again will not help; the user has to sign in again, or has to be given access to server {server}."

// readFailureText renders the text for a failure of a reading.
func readFailureText(f *failure.Failure, what string) string {
	wait := f.RetryAfter
	if f.Reason == failure.Timeout {
		wait = f.Limit
	}
	if wait == 0 {
		wait = defaultWait
	}
	text := readTexts[f.Reason]
	if f.Callers {
		text = readCallerRefused
	}
	return strings.NewReplacer("{server}", f.Server, "{what}", what, "{seconds}", seconds(wait)).Replace(text)
}

// defaultWait is the pause that a text names when nobody has said how long to wait.
const defaultWait = 5 * time.Second

// textCase is the name of a failure's text where its reason has more than one, else the reason.
func textCase(f *failure.Failure, repeatable bool) string {
	reason := string(f.Reason)
	switch f.Reason {
	case failure.Timeout, failure.ConnectionLost:
		switch {
		case f.Reason == failure.Timeout && f.Outcome == failure.NotStarted:
			return reason + "_not_started"
		case repeatable:
			return reason + "_repeatable"
		}
		return reason + "_unknown"
	case failure.CredentialsRefused:
		if f.Callers { // they are not Headgate's but the caller's
			return reason + "_caller"
		}
	}
	return reason
}

// failureText renders the text for a failure of a tool under its exposed name.
func failureText(f *failure.Failure, t *tool) string {
	name := textCase(f, t.repeatable)
	own := texts[name]
	advice := own.advice
	if replaced, ok := t.rules.text(name, string(f.Reason)); ok {
		advice = replaced
	}
	parts := make([]string, 0, 2)
	for _, part := range []string{own.fact, advice} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	wait := f.RetryAfter
	if f.Reason == failure.Timeout {
		wait = f.Limit
	}
	if wait == 0 {
		wait = defaultWait
	}
	out := strings.NewReplacer("{server}", f.Server, "{tool}", t.name, "{limit}", f.Bound, "{seconds}", seconds(wait)).
		Replace(strings.Join(parts, " "))
	for _, line := range f.Problems {
		out += "\n- " + line
	}
	return out
}
