package pg

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestAppendTexts: what is stored stays byte for byte what encoding/json writes.
func TestAppendTexts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.StringMatching(`/data/[a-z~0-9/_]{0,9}`), rapid.SampledFrom([]string{"", `"`, `\`, "<", ">", "&", "\x7f", "\n", "é", "\u2028", "\xff"}), rapid.String())
		texts := rapid.MapOfN(text, text, 1, 12).Draw(t, "texts")
		want, err := json.Marshal(texts)
		require.NoError(t, err)
		require.Equal(t, "before"+string(want), string(appendTexts([]byte("before"), texts)))
	})
}
