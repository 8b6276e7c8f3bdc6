package gateway

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// This file is where the rules of an upstream touch a call: before it is sent, and when its answer is there. What
// no rule applies to passes as the same bytes.

// withhold is the failure of a call that is not to be sent at all, or nil.
func (g *Gateway) withhold(x *exchange, t *tool) *failure.Failure {
	f := g.guarded(x, t)
	if f == nil {
		f = g.badArguments(x, t)
	}
	if f != nil {
		g.log.Info("call withheld", "tool", t.name, "upstream", f.Server, "reason", string(f.Reason))
	}
	return f
}

// treat makes the answer to a client of what the owner of a tool replied.
func (g *Gateway) treat(x *exchange, t *tool, reply *upstream.Reply) answer {
	if reply.Error != nil {
		return answer{err: g.maskError(t, reply.Error), status: errorStatus(reply.Error)}
	}
	result := reply.Result
	if !reply.Plain && t.rules.touchesErrors() {
		if obj, err := wire.ParseObject(result); err == nil && isErrorResult(obj) {
			result = g.treatError(t, result, obj)
		}
	}
	return answer{result: completed(result, reply.Era, x.era), plain: reply.Plain, reply: reply}
}

// touchesErrors reports whether results with isError: true have to be looked at.
func (r *rules) touchesErrors() bool {
	return r != nil && (len(r.guidance) > 0 || r.leaks != nil)
}

func isErrorResult(obj wire.Object) bool {
	v, _ := obj.Get("isError")
	return string(v) == "true"
}

// treatError applies the rules to a result with isError: true. It returns result itself if none applies.
func (g *Gateway) treatError(t *tool, result jsontext.Value, obj wire.Object) jsontext.Value {
	content, _ := obj.Get("content")
	var blocks, added []jsontext.Value
	if len(t.rules.guidance) > 0 {
		var err error
		if blocks, err = wire.Array(content); err == nil {
			added = t.rules.advice(t.definition.Name, blockTexts(blocks)) // of the texts as the server wrote them
		}
	}
	edits := g.maskResult(t, obj)
	if added != nil {
		content, _ = obj.Get("content")
		meta, _ := obj.Get("_meta")
		if marked, ok := markGuidance(meta, len(blocks), len(added)); ok {
			edits = append(edits, wire.Edit{Name: "content", Value: appendBlocks(content, len(blocks), added)},
				wire.Edit{Name: "_meta", Value: marked})
		}
	}
	if edits == nil {
		return result
	}
	return obj.Append(nil, edits...)
}

// blockText returns the text of a text block.
func blockText(block jsontext.Value) (text string, ok bool) {
	obj, err := wire.ParseObject(block)
	if err != nil {
		return "", false
	}
	if kind, _ := obj.Get("type"); string(kind) != `"text"` {
		return "", false
	}
	raw, _ := obj.Get("text")
	if raw.Kind() != '"' {
		return "", false
	}
	b, _ := jsontext.AppendUnquote(nil, raw) // the error is about half pairs, which become U+FFFD
	return string(b), true
}

func blockTexts(blocks []jsontext.Value) (texts []string) {
	for _, b := range blocks {
		if text, ok := blockText(b); ok {
			texts = append(texts, text)
		}
	}
	return texts
}
