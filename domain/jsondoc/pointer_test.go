package jsondoc_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/domain/jsondoc"
)

func TestEscapeToken(t *testing.T) {
	t.Parallel()
	for name, token := range map[string]string{"a": "a", "a/b": "a~1b", "m~n": "m~0n", "~1": "~01", "": ""} {
		require.Equal(t, token, jsondoc.EscapeToken(name))
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOf(rapid.SampledFrom([]rune("~/01a"))).Draw(t, "name")
		require.Equal(t, name, jsondoc.UnescapeToken(jsondoc.EscapeToken(name)))
	})
}
