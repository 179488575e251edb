package pipeline_test

import (
	"context"
	"encoding/json"
	"reflect"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/erpbackbone/backbone/ports"
)

// sharedAnswers is a policy engine whose answers are checked when the test ends: a cache gives the
// same answer to several attempts, so no attempt may change what it refers to.
type sharedAnswers struct {
	ports.PolicyEngine
	mu    sync.Mutex
	given map[any]string // a copy of each answer, with the JSON that it had
}

func newSharedAnswers(t *testing.T, engine ports.PolicyEngine) *sharedAnswers {
	s := &sharedAnswers{PolicyEngine: engine, given: map[any]string{}}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for answer, before := range s.given {
			after, err := json.Marshal(answer)
			assert.NoError(t, err)
			assert.JSONEq(t, before, string(after), "an attempt changed an answer of the policies")
		}
	})
	return s
}

func (s *sharedAnswers) Decide(ctx context.Context, query string, input, out any) error {
	if err := s.PolicyEngine.Decide(ctx, query, input, out); err != nil {
		return err
	}
	answer := reflect.New(reflect.TypeOf(out).Elem())
	answer.Elem().Set(reflect.ValueOf(out).Elem())
	text, err := json.Marshal(answer.Interface())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given[answer.Interface()] = string(text)
	return nil
}
