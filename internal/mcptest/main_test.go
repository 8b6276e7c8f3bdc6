package mcptest

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if RunChild() {
		return
	}
	goleak.VerifyTestMain(m)
}
