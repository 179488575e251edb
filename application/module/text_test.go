package module_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/fault"
)

func TestCheckTexts(t *testing.T) {
	t.Parallel()
	for payload, field := range map[string]string{
		`{"code": "\u202e", "description": "Rent", "amount": 12.50}`: "",
		`{"description": "a\u202eb"}`:                                "/description",
		`{"lines": [{"description": "a"}, {"description": " "}]}`:    "/lines/1/description",
		`{"reason": ["a", "\u200b"]}`:                                "/reason/1",
		` {"de\u0073cription": "4111111111111111"} `:                 "/description",
		`{"description": "\\ \" Rent", "lines": [], "reason": null}`: "",
		`{"person/x": {"reason": "4111111111111111"}}`:               "/person~1x/reason",
	} {
		err := module.CheckTexts(json.RawMessage(payload), "description", "reason")
		if field == "" {
			require.NoError(t, err, payload)
			continue
		}
		f, ok := fault.As(err)
		require.True(t, ok, payload)
		require.Equal(t, field, f.Field, payload)
	}
}
