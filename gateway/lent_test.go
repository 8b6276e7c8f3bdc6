package gateway

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
)

// Large answers lie in memory that is used again and again: every client gets its own all the same, in either form, also
// where results are looked at afterwards.
func TestLargeAnswersDoNotMix(t *testing.T) {
	s := &mcptest.Server{Tools: []mcptest.Tool{{
		Def: `{"name":"fill","inputSchema":{"type":"object"},"outputSchema":{"type":"object","required":["n"]}}`,
		Call: func(c *mcptest.Call) {
			n, _ := c.Arguments()["n"].(float64)
			c.Result(filled(int(n)))
		},
	}}}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t), `"check_results":"warn"`)}), Options{})
	session := g.open()
	var clients sync.WaitGroup
	for client := range 4 {
		clients.Go(func() {
			for i := range 25 {
				n := 1000*client + i
				arguments := `{"n":` + strconv.Itoa(n) + `}`
				var got reply
				switch client % 2 {
				case 0:
					got = g.callModern(strconv.Itoa(n), "x_fill", arguments)
				default:
					got = g.callLegacy(session, strconv.Itoa(n), "x_fill", arguments)
				}
				if want := filled(n); !strings.Contains(string(got.message()), `"result":`+want+`}`) {
					t.Errorf("call %d has another answer: %.100s", n, got.message())
				}
			}
		})
	}
	clients.Wait()
}

// filled is a result of a size and with a content of its own.
func filled(n int) string {
	return `{"resultType":"complete","structuredContent":{"n":` + strconv.Itoa(n) + `},"content":[{"type":"text","text":"` +
		strings.Repeat(fmt.Sprintf("%06d ", n), 12_000+n) + `"}]}`
}
