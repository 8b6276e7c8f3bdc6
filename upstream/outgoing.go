package upstream

import (
	"io"

	"github.com/headgate/headgate/internal/wire"
)

// linkLost is why a connection was lost, as the requests on it see it: in words alone. What one of them came to, and
// lost the connection by, says nothing of the others.
type linkLost struct{ why string }

func (e *linkLost) Error() string { return e.why }

// writeLine writes a message as one line. What took not a byte of it has surely not got the message.
func (o *outgoing) writeLine(w io.Writer) error {
	if o.req == nil {
		_, err := w.Write(append(o.data, '\n'))
		return err
	}
	defer close(o.done)
	o.req.sent.Store(true)
	n, err := w.Write(append(o.data, '\n'))
	if err != nil && n == 0 {
		o.req.sent.Store(false)
	}
	return err
}

// nextLine reads the next line. The rest of a message whose writer ended in the middle of it is no line.
func nextLine(lines *wire.LineReader) ([]byte, error) {
	line, err := lines.Next()
	if err == nil && lines.Unfinished() {
		if _, err := wire.Parse(line); err != nil {
			return nil, io.ErrUnexpectedEOF
		}
	}
	return line, err
}
