package demo

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSlowReport(t *testing.T) {
	for _, era := range eras {
		t.Run(era+" with progress", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := serve(t, t.Context(), "ledger", era)
				defer c.close()
				start := time.Now()
				c.request("tools/call", `"name":"slow_report","arguments":{"seconds":3}`, `"progressToken":"p"`)
				for i := 1; i <= 3; i++ {
					want := fmt.Sprintf(`"params":{"message":"%d of 3 seconds","progress":%d,"progressToken":"p","total":3}`, i, i)
					if got := c.next(); !sameMembers(got, want) {
						t.Errorf("progress is %s, want %s", got, want)
					}
				}
				got := c.next()
				if want := `"structuredContent":{"seconds":3,"invoices":5,"total":3626.6,"currency":"EUR"}`; !strings.Contains(got, want) {
					t.Errorf("result is %s, want %s", got, want)
				}
				if took := time.Since(start); took != 3*time.Second {
					t.Errorf("took %v, want 3s", took)
				}
			})
		})
		t.Run(era+" without progress", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := serve(t, t.Context(), "ledger", era)
				defer c.close()
				if r := c.call("slow_report", `{"seconds":120}`); r.IsError {
					t.Errorf("refused: %s", r.Content[0].Text)
				}
			})
		})
		t.Run(era+" cancelled", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := serve(t, t.Context(), "ledger", era)
				defer c.close()
				start := time.Now()
				c.request("tools/call", `"name":"slow_report","arguments":{"seconds":120}`, `"progressToken":1`)
				c.next()
				c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, c.ids))
				c.request("tools/list", "", "")
				for line := c.next(); !strings.Contains(line, `"tools"`); line = c.next() {
					if strings.Contains(line, `"result"`) {
						t.Errorf("the cancelled call has a result: %s", line)
					}
				}
				if took := time.Since(start); took != time.Second {
					t.Errorf("took %v, want 1s", took)
				}
			})
		})
		t.Run(era+" stopped", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, end := range []string{"context", "input"} {
					ctx, cancel := context.WithCancel(t.Context())
					c := serve(t, ctx, "ledger", era)
					start := time.Now()
					c.request("tools/call", `"name":"slow_report","arguments":{"seconds":120}`, `"progressToken":1`)
					c.next()
					if end == "context" {
						cancel()
						if err := <-c.done; err != nil {
							t.Errorf("Serve: %v", err)
						}
					} else {
						c.close()
					}
					cancel()
					if took := time.Since(start); took != time.Second {
						t.Errorf("%s ended it after %v, want 1s", end, took)
					}
				}
			})
		})
	}
}

func TestStopWithoutReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := serve(t, ctx, "ledger", "modern")
		c.request("tools/call", `"name":"slow_report","arguments":{"seconds":120}`, `"progressToken":1`)
		<-time.After(5 * time.Second) // the call now hangs on its first progress
		synctest.Wait()
		cancel()
		if err := <-c.done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// sameMembers says whether a progress notification has the wanted params, in
// whatever order.
func sameMembers(line, want string) bool {
	want = strings.TrimSuffix(strings.TrimPrefix(want, `"params":{`), `}`)
	for _, member := range strings.Split(want, ",") {
		if !strings.Contains(line, member) {
			return false
		}
	}
	return strings.Contains(line, `"method":"notifications/progress"`)
}
