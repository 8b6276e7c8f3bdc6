package gateway

import (
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// read fills x from a parsed request and checks what every request must satisfy. ok is false when a
// is the answer.
func (x *exchange) read(m wire.Message) (a answer, ok bool) {
	x.method = m.Method
	if m.Params == nil {
		return answer{}, true
	}
	in := x.given
	if in == nil {
		in = readGiven(m)
	}
	if in.paramsErr != nil {
		return invalidParams("params: " + in.paramsErr.Error()), false
	}
	if alias := in.params.Alias(routedParams...); alias != "" {
		return invalidParams("params has a member that differs from a known one only in case"), false
	}
	x.params = in.params
	if !in.hasMeta {
		return answer{}, true
	}
	if in.metaErr != nil {
		return invalidParams("params._meta must be an object with unique names"), false
	}
	meta := in.meta
	x.meta = meta
	if meta.Alias(routedMeta...) != "" {
		return invalidParams("params._meta has a member that differs from a known one only in case"), false
	}
	if token, has := meta.Get("progressToken"); has {
		if k := token.Kind(); k != '"' && k != '0' {
			return invalidParams("params._meta.progressToken must be a string or an integer"), false
		}
		x.progress = token
	}
	return answer{}, true
}

// readModern reads the protocol fields of a modern request (2026-07-28, basic, "Per-request protocol
// fields") into x, whose params have been read.
func (x *exchange) readModern() (a answer, ok bool) {
	x.era = upstream.Modern
	meta := x.meta
	v, has := meta.Get(metaVersion)
	version, isString := wire.String(v)
	switch {
	case !has:
		return invalidParams(`params._meta["` + metaVersion + `"] is required`), false
	case !isString:
		return invalidParams(`params._meta["` + metaVersion + `"] must be a string`), false
	case version != modernVersion:
		return unsupportedVersion(version), false
	}
	caps, has := meta.Get(metaCapabilities)
	if !has || caps.Kind() != '{' {
		return invalidParams(`params._meta["` + metaCapabilities + `"] is required and must be an object`), false
	}
	x.capabilities = caps
	if info, has := meta.Get(metaClientInfo); has && info.Kind() != '{' {
		return invalidParams(`params._meta["` + metaClientInfo + `"] must be an object`), false
	}
	if level, has := meta.Get(metaLogLevel); has {
		x.logLevel, _ = wire.String(level)
		if upstream.LogLevelIndex(x.logLevel) < 0 {
			return invalidParams(`params._meta["` + metaLogLevel + `"] is not a log level`), false
		}
	}
	return answer{}, true
}

// setLevel answers logging/setLevel of a legacy client (2025-11-25, server/utilities/logging). The
// level holds for the session and is given to servers with each call.
func (s *session) setLevel(x *exchange) answer {
	raw, _ := x.params.Get("level")
	level, _ := wire.String(raw)
	if upstream.LogLevelIndex(level) < 0 {
		return invalidParams("params.level is not a log level")
	}
	s.logLevel.Store(&level)
	return answer{result: []byte("{}")}
}

// cancelledID returns the request that a notifications/cancelled names.
func cancelledID(m wire.Message) wire.ID {
	params, err := wire.ParseObject(m.Params)
	if err != nil {
		return ""
	}
	id, _ := params.Get("requestId")
	return wire.ID(id)
}
