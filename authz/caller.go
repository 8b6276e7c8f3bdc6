package authz

// Caller is who sent a request. It is immutable.
type Caller struct {
	// Subject names the caller; it is unique among callers.
	Subject string
}

// Anonymous is the caller of every request while no authentication is configured, which is possible
// on loopback listeners only.
func Anonymous() Caller { return Caller{Subject: "anonymous"} }
