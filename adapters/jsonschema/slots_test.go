package jsonschema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
)

// A large document with violations waits for a slot; small ones and valid ones do not.
func TestValidate_LibraryWorksInSlots(t *testing.T) {
	s := mustCompile(t, `{"type":"array","items":{"type":"string"}}`)
	large := strings.Repeat(" ", largeDocument)
	kept := slots
	t.Cleanup(func() { slots = kept })
	synctest.Test(t, func(t *testing.T) {
		slots = make(chan struct{}, 1)
		slots <- struct{}{}
		for document, violations := range map[string]int{`["a"]` + large: 0, `[1]`: 1} {
			found, err := s.Validate(json.RawMessage(document))
			require.NoError(t, err)
			require.Len(t, found, violations)
		}
		refused := make(chan []fault.Violation, 1)
		go func() {
			found, _ := s.Validate(json.RawMessage(`[1]` + large))
			refused <- found
		}()
		synctest.Wait()
		require.Empty(t, refused, "a large document was validated without a slot")
		<-slots
		require.Len(t, <-refused, 1)
		synctest.Wait()
		require.Empty(t, slots, "the slot is free again")
	})
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
