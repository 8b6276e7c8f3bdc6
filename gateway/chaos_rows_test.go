package gateway

import "github.com/headgate/headgate/internal/mcptest"

// chaosRow is what a fault comes to.
type chaosRow struct {
	name   string // of the row, where it is not the fault's
	fault  string
	trap   string                // a fault that a call before this one prepares
	before func(h *mcptest.HTTP) // what happens to the server's connections just before
	// plain is what the client is told. For a tool that is safe to repeat it is told so where the outcome
	// is unknown, and otherwise the same.
	plain outcome
	// runs and sent are executions, and requests that were read, of a tool that is not safe to repeat and of
	// one that is.
	runs, sent [2]int
	// rescued says that a tool that is safe to repeat is answered well by the second try.
	rescued bool
	// relinked says that the fault costs the connection. A call that is safe to repeat is then sent once more
	// only if a new one stands soon enough, which on a busy machine it may not.
	relinked bool
	// replaced says that the call goes to another process, if that is there soon enough, and else is not
	// started.
	replaced bool
}

// of is the row for one of the tools.
func (row chaosRow) of(tool string) (want outcome, runs, sent int) {
	want = row.plain
	if tool == "plain" {
		return want, row.runs[0], row.sent[0]
	}
	if row.rescued {
		want = answered
	}
	if want.outcome == "unknown" && want.channel == "result" {
		want.retryable, want.says = true, "safe to repeat"
	}
	return want, row.runs[1], row.sent[1]
}

var (
	answered   = outcome{channel: "answer"}
	lost       = outcome{reason: "connection_lost", outcome: "unknown", channel: "result", says: "outcome of this call is unknown: the connection"}
	timedOut   = outcome{reason: "timeout", outcome: "unknown", channel: "result", says: "outcome of this call is unknown"}
	bad        = outcome{reason: "bad_upstream_answer", outcome: "unknown", channel: "error", says: "not valid MCP"}
	notStarted = outcome{reason: "unavailable", outcome: "not_started", retryable: true, channel: "result", says: "Nothing was sent, so nothing has happened"}
	tooBusy    = outcome{reason: "overloaded", outcome: "refused", retryable: true, channel: "result", says: "Wait 5 seconds"}
	tooBusyFor = outcome{reason: "overloaded", outcome: "refused", retryable: true, retryAfter: "7000", channel: "result", says: "Wait 7 seconds"}
	locked     = outcome{reason: "credentials_refused", outcome: "refused", channel: "result", says: "Repeating the call will not help"}
)

// chaosRows are the rows of a transport: what holds of any that speaks HTTP, and what is its own.
func chaosRows(transport string) []chaosRow {
	once, twice := [2]int{1, 1}, [2]int{1, chaosTries}
	never := [2]int{}
	http := []chaosRow{
		// Nobody listens: no connection, so nothing was sent.
		{name: "refused", before: (*mcptest.HTTP).Stop, plain: notStarted},
		// The request stood in the socket's buffer when the server closed the connection. TCP does not say
		// how much of it the server read before, so that unknown is the truth, although nothing was run.
		{name: "closed before it is read", before: (*mcptest.HTTP).Shut, plain: lost},
		// The same seen from here: the request was read, and nobody can know what came of it.
		{fault: "close_read", plain: lost, runs: never, sent: twice},
		{fault: "close_run", plain: lost, runs: twice, sent: twice},
		{fault: "reset_run", plain: lost, runs: twice, sent: twice},
		// The time of a call is for all its tries, so that one that hangs is not sent again.
		{fault: "hang_headers", plain: timedOut, runs: once, sent: once},
		{fault: "hang_headers_idle", plain: timedOut, runs: never, sent: once},
		// The server says that it turned the request away.
		{fault: "429", plain: tooBusy, runs: never, sent: twice},
		{fault: "401", plain: locked, runs: never, sent: once},
		// A status without a message says nothing of the work: 500 comes from a server that failed over it,
		// before or after it was done.
		{fault: "500", plain: bad, runs: once, sent: once},
		{fault: "500_wait", plain: bad, runs: once, sent: once},
		// 503 without Retry-After is what a proxy says whose server is not there, or no longer: the two
		// rows cannot be told apart.
		{fault: "503", plain: lost, runs: never, sent: twice},
		{fault: "503_run", plain: lost, runs: twice, sent: twice},
		// Nobody waits for longer than the call has, so that even a call that is safe to repeat is sent once.
		{fault: "429_wait", plain: tooBusyFor, runs: never, sent: once},
		{fault: "503_wait", plain: tooBusyFor, runs: never, sent: once},
	}
	all := []chaosRow{
		{name: "none", plain: answered, runs: once, sent: once},
		{fault: "hang", plain: timedOut, runs: once, sent: once},
		{fault: "drip", plain: answered, runs: once, sent: once},
		{fault: "storm", plain: answered, runs: once, sent: once},
		{fault: "oversize", plain: bad, runs: once, sent: once},
	}
	switch transport {
	case "http":
		return append(append(http, all...),
			chaosRow{fault: "hang_stream", plain: timedOut, runs: once, sent: once},
			chaosRow{fault: "drip_forever", plain: timedOut, runs: once, sent: once},
			chaosRow{fault: "half_json", plain: lost, runs: twice, sent: twice},
			chaosRow{fault: "half_event", plain: lost, runs: twice, sent: twice},
			chaosRow{fault: "end_stream", plain: lost, runs: twice, sent: twice},
			chaosRow{fault: "wrong_id", plain: bad, runs: once, sent: once},
			// An answer to another call on the stream is dropped, and then the stream ends without one.
			chaosRow{fault: "wrong_id_stream", plain: lost, runs: twice, sent: twice},
			// Two answers in one body are no message. On a stream the first is the answer.
			chaosRow{fault: "two_answers", plain: bad, runs: once, sent: once},
			chaosRow{fault: "two_answers_stream", plain: answered, runs: once, sent: once},
			chaosRow{fault: "oversize_stream", plain: bad, runs: once, sent: once},
			chaosRow{fault: "no_message", plain: bad, runs: once, sent: once})
	case "sse":
		return append(append(http, all...),
			chaosRow{fault: "hang_stream", plain: timedOut, runs: once, sent: once},
			chaosRow{fault: "half_event", plain: lost, runs: twice, sent: twice, relinked: true},
			chaosRow{fault: "end_stream", plain: lost, runs: twice, sent: twice, relinked: true},
			// On a shared stream an answer that nobody waits for is dropped, and the call waits for its own.
			chaosRow{fault: "wrong_id", plain: timedOut, runs: once, sent: once},
			chaosRow{fault: "two_answers", plain: answered, runs: once, sent: once},
			chaosRow{fault: "broken_answer", plain: bad, runs: once, sent: once})
	}
	return append(all,
		chaosRow{fault: "drip_forever", plain: timedOut, runs: once},
		chaosRow{fault: "wrong_id", plain: timedOut, runs: once},
		chaosRow{fault: "two_answers", plain: answered, runs: once},
		chaosRow{fault: "garbage", plain: answered, runs: once},
		chaosRow{fault: "broken_answer", plain: bad, runs: once},
		// The line was in the pipe when the process ended; a pipe does not say who read it.
		chaosRow{name: "exit before it is read", trap: "exit_next", plain: lost, runs: [2]int{0, 1}, rescued: true},
		// A pipe without a reader takes nothing, which the writer is told: nothing was sent, and the next
		// process has the call.
		chaosRow{name: "no longer reads", trap: "deaf_next", plain: answered, runs: once, replaced: true},
		chaosRow{fault: "exit_read", plain: lost, runs: never},
		chaosRow{fault: "exit_run", plain: lost, runs: twice, relinked: true},
		chaosRow{fault: "half_line", plain: lost, runs: twice, relinked: true},
		chaosRow{fault: "close_stdout", plain: lost, runs: twice, relinked: true})
}
