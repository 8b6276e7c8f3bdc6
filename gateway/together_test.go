package gateway

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
)

// meeting makes the tool "meet" of a legacy server: it waits until n calls are in it, on whatever session, and then asks
// with the word of its arguments, so that all questions are open at a time.
func meeting(n int) mcptest.Tool {
	var mu sync.Mutex // guards in and all
	in, all := 0, make(chan struct{})
	return mcptest.Tool{Def: `{"name":"meet","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
		mu.Lock()
		here := all
		if in++; in == n {
			close(all)
			in, all = 0, make(chan struct{})
		}
		mu.Unlock()
		select {
		case <-here:
		case <-c.Ctx.Done():
			return
		}
		result, fault := c.Ask("elicitation/create", `{"message":"`+fmt.Sprint(c.Arguments()["word"])+`"}`)
		c.Structured(`{"told":` + string(result) + string(fault) + `}`)
	}}
}

// TestQuestionsAtTheSameTime has clients of both eras at one stdio server, all of whose calls ask at the same time. With
// a session for each of them, each gets its own question and nobody else's. On a shared session the questions say
// nothing of their calls, so nobody is asked, and every call ends at once.
func TestQuestionsAtTheSameTime(t *testing.T) {
	// Callers a and b have a legacy and a modern client over HTTP each, and there are two legacy ones over stdio.
	const clients = 6
	for _, session := range []string{"client", "shared"} {
		t.Run(session, func(t *testing.T) {
			s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{meeting(clients)}}
			g := launch(t, parseConfig(t, map[string]string{"x": `{"command":"embedded","session":"` + session + `"}`}, keyed), Options{Embedded: embed("x", s)})
			args := func(word string) string { return `{"word":"` + word + `"}` }
			check := func(word string, asked []string, answer string) {
				told := at(t, answer, "result", "structuredContent", "told")
				switch {
				case session == "shared":
					if len(asked) != 0 || at(t, told, "code") != "-32601" {
						t.Errorf("%s was asked %q and answered %s", word, asked, answer)
					}
				case len(asked) != 1 || !strings.Contains(asked[0], `"message":"`+word+`"`) || told != `{"word":"`+word+`"}`:
					t.Errorf("%s was asked %q and answered %s", word, asked, answer)
				}
			}
			for range 3 {
				var all sync.WaitGroup
				for _, caller := range []string{"a", "b"} {
					auth := "Authorization: Bearer " + caller
					legacy, pipe := g.openWith(allAbilities, auth), g.pipe()
					http := g.overHTTP(legacy, auth)
					if session == "shared" {
						http = func(id, tool, args string, _ replier, _ ...string) dialogue {
							return dialogue{answer: g.post(legacyCall(id, tool, args, nil), legacy, auth).message()}
						}
					}
					pipe.call(`"init"`, initializeWith(allAbilities))
					for client, call := range map[string]converse{"http": http, "stdio": pipe.converse} {
						all.Go(func() {
							word := caller + " " + client
							d := call("1", "x_meet", args(word), func(string, string) string { return `"result":{"word":"` + word + `"}` })
							check(word, d.asked, d.answer)
						})
					}
					all.Go(func() {
						word := caller + " modern"
						call := callParams("x_meet", args(word))
						answer := g.capable("1", call, auth).message()
						var asked []string
						if at(t, answer, "result", "resultType") == `"input_required"` {
							inputs, state := mustDemand(t, answer)
							asked = append(asked, inputs)
							answer = g.capable("2", call+retry(`{"q1":{"word":"`+word+`"}}`, state), auth).message()
						}
						check(word, asked, answer)
					})
				}
				all.Wait()
			}
		})
	}
}
