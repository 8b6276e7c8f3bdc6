package gateway

import "github.com/headgate/headgate/internal/wire"

// given are the params of a message, read once for all that look at them.
type given struct {
	params    wire.Object // nil when there are none
	paramsErr error
	meta      wire.Object // the members of params._meta
	metaErr   error
	hasMeta   bool
}

func readGiven(m wire.Message) *given {
	in := &given{}
	if m.Params == nil {
		return in
	}
	if in.params, in.paramsErr = wire.ParseObject(m.Params); in.paramsErr != nil {
		return in
	}
	raw, has := in.params.Get("_meta")
	if in.hasMeta = has; has {
		in.meta, in.metaErr = wire.ParseObject(raw)
	}
	return in
}

// version is the protocol version that a request names in its _meta; has says that the member is there, and be it
// no string.
func (in *given) version() (version string, has bool) {
	v, has := in.meta.Get(metaVersion)
	version, _ = wire.String(v)
	return version, has
}
