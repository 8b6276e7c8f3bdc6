package upstream

import (
	"context"
	"fmt"
	"io"

	"github.com/headgate/headgate/internal/wire"
)

// ServeFunc runs an in-process server on a pair of pipes with newline-delimited messages until in
// ends or ctx does.
type ServeFunc func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error

// embedded is a server inside Headgate's own process.
type embedded struct {
	*duplex
	cancel context.CancelFunc
	served chan struct{}
}

func (u *Upstream) startEmbedded(serve ServeFunc) *embedded {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	e := &embedded{cancel: cancel, served: make(chan struct{})}
	go func() {
		defer close(e.served)
		err := serve(ctx, inR, outW)
		if err == nil {
			err = io.EOF
		}
		outW.CloseWithError(err)
		inR.CloseWithError(err)
	}()
	lines := wire.NewLineReader(outR, int(u.cfg.MaxAnswer))
	read := func() ([]byte, error) {
		line, err := nextLine(lines)
		return line, pipeError("reading from the server", err)
	}
	write := func(o *outgoing) error {
		return pipeError("writing to the server", o.writeLine(inW))
	}
	e.duplex = u.newDuplex(read, write, func() {
		inW.Close()
		outR.Close()
	})
	return e
}

// pipeError says at which end of the pipes a connection broke.
func pipeError(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func (e *embedded) close() {
	e.fail(errClosed)
	e.cancel()
	<-e.served
	e.duplex.wg.Wait()
}

var _ transport = (*embedded)(nil)
