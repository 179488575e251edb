package jsonschema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
)

// A document with more violations than processors can list waits for a slot; valid documents do
// not wait.
func TestValidate_LibraryWorksInSlots(t *testing.T) {
	s := mustCompile(t, `{"type":"array","items":{"type":"string"}}`)
	for range cap(slots) {
		slots <- struct{}{}
	}
	found, err := s.Validate(json.RawMessage(`["a"]`))
	require.NoError(t, err)
	require.Empty(t, found)
	refused := make(chan []fault.Violation)
	go func() {
		found, _ := s.Validate(json.RawMessage(`[1]`))
		refused <- found
	}()
	select {
	case <-refused:
		require.Fail(t, "a document was validated without a slot")
	default:
	}
	for range cap(slots) {
		<-slots
	}
	require.Len(t, <-refused, 1)
	require.Empty(t, slots, "the slot is free again")
}

// Of many violations the first by pointer and keyword are kept, each once.
func TestViolations_FirstInOrder(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, `{"additionalProperties":{"allOf":[{"type":"string"},{"type":"string"}]}}`)
	names := make([]string, 5000)
	for i := range names {
		names[i] = fmt.Sprintf(`"n%04d":1`, len(names)-1-i)
	}
	found, err := s.Validate(json.RawMessage("{" + strings.Join(names, ",") + "}"))
	require.NoError(t, err)
	require.Len(t, found, maxViolations)
	for i := range 50 {
		require.Equal(t, fmt.Sprintf("/n%04d schema.all_of", i), found[2*i].Field+" "+found[2*i].Code)
		require.Equal(t, fmt.Sprintf("/n%04d schema.type", i), found[2*i+1].Field+" "+found[2*i+1].Code)
	}
}
