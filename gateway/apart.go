package gateway

// sessionOver tells every upstream that a client's session has ended, so that what was opened there for this
// client alone is closed too.
func (g *Gateway) sessionOver(s *session) {
	g.mu.Lock()
	all := g.members()
	g.mu.Unlock()
	for _, m := range all {
		m.up.EndSession(s.id)
	}
}
