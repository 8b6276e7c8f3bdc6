package gateway

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/failure"
)

func TestVerdict(t *testing.T) {
	_, bug := incident()
	lost := &failure.Failure{Server: "a", Reason: failure.ConnectionLost, Outcome: failure.Unknown}
	bad := &failure.Failure{Server: "a", Reason: failure.BadUpstreamAnswer, Outcome: failure.Unknown}
	owned := &tool{name: "a_t"}
	for name, tc := range map[string]struct {
		answer    answer
		outcome   string
		errorType string
	}{
		"success":                    {answer{result: jsontext.Value(`{"content":[]}`)}, "ok", ""},
		"isError":                    {answer{result: jsontext.Value(`{"content":[], "isError" : true}`)}, "tool_error", "tool_error"},
		"isError false":              {answer{result: jsontext.Value(`{"isError":false}`)}, "ok", ""},
		"isError inside the content": {answer{result: jsontext.Value(`{"structuredContent":{"isError":true}}`)}, "ok", ""},
		"an error of the upstream's": {answer{err: jsontext.Value(`{"code":-32050,"message":"m"}`)}, "protocol_error", "-32050"},
		"unknown tool":               {unknownTool("x"), "protocol_error", "-32602"},
		"a failure as a result":      {failCall(lost, owned, 0), "connection_lost", "connection_lost"},
		"a failure as an error":      {failCall(bad, owned, 0), "bad_upstream_answer", "bad_upstream_answer"},
		"cancelled":                  {answer{silent: true}, "cancelled", "cancelled"},
		"a bug":                      {bug, "internal", "internal"},
	} {
		t.Run(name, func(t *testing.T) {
			v := verdictOf(tc.answer)
			if v.outcome != tc.outcome || v.errorType() != tc.errorType {
				t.Errorf("outcome %q, error.type %q; want %q, %q", v.outcome, v.errorType(), tc.outcome, tc.errorType)
			}
		})
	}
}
