package upstream

import (
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/schema"
	"github.com/headgate/headgate/internal/wire"
)

// schemas are the compiled schemas of one tool, each made when it is first needed.
type schemas struct{ input, output lazySchema }

type lazySchema struct {
	once sync.Once
	s    *schema.Schema
	err  error
}

func (l *lazySchema) get(definition jsontext.Value, member string) (*schema.Schema, error) {
	l.once.Do(func() {
		obj, err := wire.ParseObject(definition)
		if err != nil {
			return // cannot be: it was parsed when the catalogue was read
		}
		if text, ok := obj.Get(member); ok {
			l.s, l.err = schema.Compile(text)
		}
	})
	return l.s, l.err
}

// InputSchema returns the compiled inputSchema. It is compiled once; the error says why it cannot be, in words for
// operators. Both are nil where there is none.
func (t *Tool) InputSchema() (*schema.Schema, error) {
	if t.schemas == nil {
		return nil, nil
	}
	return t.schemas.input.get(t.Definition, "inputSchema")
}

// OutputSchema is InputSchema for outputSchema.
func (t *Tool) OutputSchema() (*schema.Schema, error) {
	if t.schemas == nil {
		return nil, nil
	}
	return t.schemas.output.get(t.Definition, "outputSchema")
}
