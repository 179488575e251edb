package gl_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/modules/gl/domain"
	"github.com/erpbackbone/backbone/test/typestest"
)

// TestCodecs stores and loads the state of random histories between events and compares the
// result with a fold that never stored it.
func TestCodecs(t *testing.T) {
	t.Parallel()
	catalog, err := module.Build(typestest.Schemas{}, gl.New())
	require.NoError(t, err)
	for stream, draw := range map[string]func(*rapid.T) (string, string){
		domain.StreamExchangeRate: func(t *rapid.T) (string, string) {
			return domain.EventExchangeRateSet, fmt.Sprintf(`{"from":"EUR","to":"USD","rate_type":%q,"date":"2026-03-%02d","rate":%d.%04d}`,
				rapid.SampledFrom([]string{"spot", "closing"}).Draw(t, "type"), rapid.IntRange(1, 28).Draw(t, "day"), rapid.IntRange(0, 3).Draw(t, "rate"), rapid.IntRange(1, 9999).Draw(t, "part"))
		},
		domain.StreamDimension: func(t *rapid.T) (string, string) {
			return domain.EventDimensionValueDefined, fmt.Sprintf(`{"dimension":"project","value":"P-%d","name":"x","active_from":"2026-01-%02d"}`,
				rapid.IntRange(1, 9).Draw(t, "value"), rapid.IntRange(1, 28).Draw(t, "day"))
		},
	} {
		fold, ok := catalog.Fold(stream)
		require.True(t, ok)
		require.NotNil(t, fold.Codec)
		rapid.Check(t, func(rt *rapid.T) {
			straight, stored := fold.New(), fold.New()
			for range rapid.IntRange(0, 30).Draw(rt, "events") {
				name, data := draw(rt)
				e := event.Recorded{Skeleton: event.Skeleton{Type: name}}
				require.NoError(rt, fold.Apply(straight, e, []byte(data)))
				require.NoError(rt, fold.Apply(stored, e, []byte(data)))
				if rapid.Bool().Draw(rt, "store") {
					text, err := fold.Codec.Encode(stored)
					require.NoError(rt, err)
					stored, err = fold.Codec.Decode(text)
					require.NoError(rt, err)
				}
			}
			text, err := fold.Codec.Encode(stored)
			require.NoError(rt, err)
			stored, err = fold.Codec.Decode(text)
			require.NoError(rt, err)
			again, err := fold.Codec.Encode(straight)
			require.NoError(rt, err)
			require.JSONEq(rt, string(again), string(text))
			if h, ok := straight.(*domain.RateHistory); ok {
				for day := range 31 {
					d := event.MustDate("2026-02-27").AddDays(day)
					for _, kind := range []string{"spot", "closing"} {
						want, found := h.Latest(kind, d)
						got, same := stored.(*domain.RateHistory).Latest(kind, d)
						require.Equal(rt, found, same)
						require.Equal(rt, want, got)
					}
				}
				return
			}
			require.Equal(rt, straight, stored)
		})
	}
}
