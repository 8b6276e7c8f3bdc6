package failure

import (
	"errors"
	"fmt"
	"time"
)

// Reason says why Headgate could not hand a request to its upstream or an answer back. The set is
// closed: every reason that a client, a log or a metric can show is one of these.
type Reason string

// The reasons, in the order of the failure table.
const (
	Unavailable        Reason = "unavailable"
	BreakerOpen        Reason = "breaker_open"
	Overloaded         Reason = "overloaded"
	CredentialsRefused Reason = "credentials_refused"
	Timeout            Reason = "timeout"
	ConnectionLost     Reason = "connection_lost"
	BadUpstreamAnswer  Reason = "bad_upstream_answer"
	RateLimited        Reason = "rate_limited"
	ConcurrencyLimited Reason = "concurrency_limited"
	Guarded            Reason = "guarded"
	InvalidArguments   Reason = "invalid_arguments"
	InvalidResult      Reason = "invalid_result"
	InputRefused       Reason = "input_refused"
	Internal           Reason = "internal"
)

// Outcome says what is known of the work that the request asked for.
type Outcome string

const (
	// NotStarted: no byte of the request can have reached the upstream.
	NotStarted Outcome = "not_started"
	// Unknown: the request may have reached the upstream, and no answer came back.
	Unknown Outcome = "unknown"
	// Refused: the upstream, or a proxy before it, turned the request away without running it, or ended it with the
	// demand for more.
	Refused Outcome = "refused"
)

// Failure is an error of Headgate itself, as opposed to one that an upstream reported. Cause is for
// logs only and never reaches a client.
type Failure struct {
	Server     string        // id of the upstream concerned; "" when none is
	Reason     Reason        //
	Outcome    Outcome       //
	RetryAfter time.Duration // how long the upstream asked to wait; 0 when it did not say
	Limit      time.Duration // the time limit that ran out, for Timeout; 0 otherwise
	Bound      string        // which limit was reached, in words of the configuration, for RateLimited and ConcurrencyLimited
	Callers    bool          // the credentials that were refused are the caller's own, for CredentialsRefused
	Problems   []string      // what does not fit a schema, one line each, for InvalidArguments and InvalidResult
	Cause      error         // what happened, in words for the operator; may be nil
}

// Error describes the failure for logs.
func (f *Failure) Error() string {
	s := string(f.Reason)
	if f.Server != "" {
		s = "upstream " + f.Server + ": " + s
	}
	if f.Outcome != "" {
		s += fmt.Sprintf(" (outcome %s)", f.Outcome)
	}
	if f.Cause != nil {
		s += ": " + f.Cause.Error()
	}
	return s
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Cause }

// As returns the Failure in err's chain, or nil.
func As(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	return nil
}
