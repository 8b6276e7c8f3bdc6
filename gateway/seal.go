package gateway

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"time"
)

// sealer makes and reads requestState (2026-07-28, basic/patterns/mrtr): what a client carries from one request to
// the next is encrypted and authenticated with a key that lives as long as this process.
type sealer struct{ aead cipher.AEAD }

func newSealer() *sealer {
	var key [32]byte
	rand.Read(key[:]) // never fails
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // the block has the right size
	}
	return &sealer{aead}
}

// ticket is what a requestState says: which call waits, at which round, and all that a request has to agree with to
// take it up.
type ticket struct {
	Talk    string    `json:"k"`
	Round   int       `json:"r"`
	Owner   string    `json:"o"` // caller and endpoint
	Server  string    `json:"s"`
	Call    string    `json:"c"` // digest of method, name and arguments
	Expires time.Time `json:"e"`
}

// sealed marks what is Headgate's own, so that other texts are not decoded.
const sealed = "hg1."

// maxSealed bounds what is tried to be read.
const maxSealed = 4096

func (s *sealer) seal(t ticket) string {
	b, err := json.Marshal(t)
	if err != nil {
		panic(err) // strings, a number and a time
	}
	return sealed + base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, b, []byte(sealed)))
}

// open reads a requestState; false for one that this process has not made.
func (s *sealer) open(state string) (t ticket, ok bool) {
	if len(state) > maxSealed || len(state) < len(sealed) || state[:len(sealed)] != sealed {
		return ticket{}, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(state[len(sealed):])
	if err != nil {
		return ticket{}, false
	}
	if b, err = s.aead.Open(nil, nil, b, []byte(sealed)); err != nil {
		return ticket{}, false
	}
	return t, json.Unmarshal(b, &t) == nil
}
