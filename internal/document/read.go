package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// MaxSize bounds a document, in bytes.
const MaxSize = 1 << 20

// Read decodes the JSON document that an answer holds; to is a pointer, as for json.Unmarshal. It closes the body.
// Nothing of the answer but its status gets into the error.
func Read(resp *http.Response, to any) error {
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxSize+1))
	switch {
	case err != nil:
		return errors.New("the answer broke off")
	case len(body) > MaxSize:
		return fmt.Errorf("the answer has more than %d bytes", MaxSize)
	case json.Unmarshal(body, to) != nil:
		return errors.New("the answer is not the JSON that was expected")
	}
	return nil
}
