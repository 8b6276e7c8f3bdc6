package gateway

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// abilities are what a client can be asked for: of its capabilities the part that Headgate can bring questions
// for, and nothing else, in a form of its own. It is nil for a client that cannot be asked anything.
type abilities jsontext.Value

// abilitiesOf reads a capabilities object of either era.
func abilitiesOf(caps jsontext.Value) abilities {
	obj, err := wire.ParseObject(caps)
	if err != nil || len(obj) == 0 {
		return nil
	}
	b := []byte{'{'}
	add := func(name string, members ...string) {
		v, _ := obj.Get(name)
		if v.Kind() != '{' {
			return
		}
		can, err := wire.ParseObject(v)
		if err != nil {
			return
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, `"`+name+`":{`...)
		first := true
		for _, m := range members {
			if v, _ := can.Get(m); v.Kind() != '{' {
				continue
			}
			if !first {
				b = append(b, ',')
			}
			first = false
			b = append(b, `"`+m+`":{}`...)
		}
		b = append(b, '}')
	}
	add("elicitation", "form", "url")
	add("sampling", "context", "tools")
	add("roots")
	if len(b) == 1 {
		return nil
	}
	return abilities(append(b, '}'))
}

// refuse answers a question in the client's stead when the client has not declared what it takes (2025-11-25,
// client/elicitation, client/sampling, client/roots); ok is false when the client is to be asked.
func (a abilities) refuse(q upstream.Question) (answer upstream.Answer, ok bool) {
	all, _ := wire.ParseObject(jsontext.Value(a))
	params, _ := wire.ParseObject(q.Params)
	can := func(name string) (wire.Object, bool) {
		v, _ := all.Get(name)
		obj, err := wire.ParseObject(v)
		return obj, err == nil
	}
	invalid := func(text string) (upstream.Answer, bool) {
		return upstream.Answer{Error: wire.ErrorObject(wire.CodeInvalidParams, text, nil)}, true
	}
	switch q.Method {
	case "elicitation/create":
		can, ok := can("elicitation")
		if !ok {
			break
		}
		mode, _ := params.Get("mode")
		_, form := can.Get("form")
		_, url := can.Get("url")
		switch {
		case string(mode) == `"url"` && !url:
			return invalid("the client did not declare elicitation in url mode")
		case (mode == nil || string(mode) == `"form"`) && url && !form:
			return invalid("the client did not declare elicitation in form mode")
		}
		return upstream.Answer{}, false
	case "sampling/createMessage":
		can, ok := can("sampling")
		if !ok {
			break
		}
		_, tools := can.Get("tools")
		_, asks := params.Get("tools")
		_, chooses := params.Get("toolChoice")
		if (asks || chooses) && !tools {
			return invalid("the client did not declare the use of tools in sampling")
		}
		return upstream.Answer{}, false
	case "roots/list":
		if _, ok := can("roots"); ok {
			return upstream.Answer{}, false
		}
	}
	return upstream.Undeclared(q.Method), true
}

// errorStatus is the HTTP status that a server's error has for modern clients, or 0 where any will do: the protocol
// wants 400 for a missing capability (2026-07-28, basic, "Client Capabilities").
func errorStatus(err jsontext.Value) int {
	if code, _, _ := wire.ErrorCode(err); code == wire.CodeMissingClientCapability {
		return http.StatusBadRequest
	}
	return 0
}

// unanswered is what a server is told when its question brought no answer.
func unanswered(method string) upstream.Answer {
	if method == "elicitation/create" {
		return upstream.Answer{Result: jsontext.Value(`{"action":"cancel"}`)}
	}
	return upstream.Answer{Error: wire.ErrorObject(wire.CodeInternal, "the client gave no answer", nil)}
}

// questionParams are the params of a question on the hop to the client: as the server wrote them, but for what only
// means something on its own hop, its progress token and the wish to run the question as a task.
func questionParams(params jsontext.Value) jsontext.Value {
	obj, err := wire.ParseObject(params)
	if err != nil {
		return nil
	}
	edits := []wire.Edit{{Name: "task"}}
	if raw, ok := obj.Get("_meta"); ok {
		if meta, err := wire.ParseObject(raw); err == nil {
			left := jsontext.Value(meta.Append(nil, wire.Edit{Name: "progressToken"}))
			if string(left) == "{}" && len(meta) > 0 {
				left = nil
			}
			edits = append(edits, wire.Edit{Name: "_meta", Value: left})
		}
	}
	return obj.Append(nil, edits...)
}
