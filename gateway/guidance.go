package gateway

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/wire"
)

// metaGuidance marks a result to which Headgate has added blocks: {"blocks": [their indices in content]}.
const metaGuidance = "dev.headgate/guidance"

// maxMatched bounds how much text of one result the patterns of guidance look at, in bytes.
const maxMatched = 64 << 10

// guidance is one rule, ready for use.
type guidance struct {
	tools []string // globs; none for all
	match *regexp.Regexp
	block jsontext.Value
}

func compileGuidance(list []configs.Guidance) []guidance {
	var out []guidance
	for _, g := range list {
		match, err := regexp.Compile(g.Match)
		if err != nil {
			continue // cannot be: it compiled when the configuration was loaded
		}
		block := append(wire.AppendString([]byte(`{"type":"text","text":`), g.Append), '}')
		out = append(out, guidance{tools: g.Tools, match: match, block: block})
	}
	return out
}

// advice returns the blocks to be added to a result of a tool with these texts.
func (r *rules) advice(tool string, texts []string) (blocks []jsontext.Value) {
	for i := range r.guidance {
		g := &r.guidance[i]
		if len(g.tools) > 0 && !configs.MatchTool(g.tools, tool) {
			continue
		}
		left := maxMatched
		if slices.ContainsFunc(texts, func(text string) bool {
			text = text[:min(left, len(text))]
			left -= len(text)
			return text != "" && g.match.MatchString(text)
		}) {
			blocks = append(blocks, g.block)
		}
	}
	return blocks
}

// appendBlocks puts blocks at the end of a content array of n blocks, and nothing else in it is touched.
func appendBlocks(content jsontext.Value, n int, blocks []jsontext.Value) jsontext.Value {
	out := bytes.Clone(content[:len(content)-1])
	for i, b := range blocks {
		if n+i > 0 {
			out = append(out, ',')
		}
		out = append(out, b...)
	}
	return append(out, ']')
}

// markGuidance is a result's _meta with the mark that says which blocks were added; ok is false for a _meta that
// cannot be added to.
func markGuidance(meta jsontext.Value, from, added int) (marked jsontext.Value, ok bool) {
	var obj wire.Object
	if len(meta) > 0 {
		var err error
		if obj, err = wire.ParseObject(meta); err != nil {
			return nil, false
		}
	}
	mark := []byte(`{"blocks":[`)
	for i := range added {
		if i > 0 {
			mark = append(mark, ',')
		}
		mark = strconv.AppendInt(mark, int64(from+i), 10)
	}
	return obj.Append(nil, wire.Edit{Name: metaGuidance, Value: append(mark, `]}`...)}), true
}
