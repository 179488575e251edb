package configs

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFanOutAndWebhooksAreChecked(t *testing.T) {
	t.Parallel()
	for setting, sound := range map[string]bool{
		"NATS_URLS=nats://u:p@a:4222,nats://b:4222": true, "NATS_SUBJECT_PREFIX=erp.events": true, "NATS_REPLICAS=3": true,
		"NATS_SUBJECT_PREFIX=erp.>": false, "NATS_SUBJECT_PREFIX=a..b": false, "NATS_STREAM=a.b": false, "NATS_REPLICAS=6": false, "NATS_BATCH=1001": false,
		"NATS_CERT_FILE=x": false, "NATS_MAX_AGE=1s": false, "NATS_DUPLICATE_WINDOW=0s": false,
		"SUBSCRIPTIONS_PER_TENANT=5": true, "SUBSCRIPTIONS_PER_TENANT=0": false, "SUBSCRIPTIONS_POLL_BYTES=65536": true, "SUBSCRIPTIONS_POLL_BYTES=1": false,
		"SUBSCRIPTIONS_SWEEP=1ms": false, "SUBSCRIPTIONS_RECHECK=2m": false, "SUBSCRIPTIONS_MEASURE=1s": true, "PROJECTOR_BYTES=1": false,
		"WEBHOOK_ALLOWED_NETWORKS=10.1.0.0/16,fd00:1::/64": true, "WEBHOOK_ALLOWED_NETWORKS=10.1.0.0": false, "WEBHOOK_TIMEOUT=1ms": false, "WEBHOOK_CONCURRENCY=0": false,
	} {
		_, err := load("", func() []string { return []string{envPrefix + setting} })
		require.Equal(t, sound, err == nil, "%s: %v", setting, err)
	}
	c, err := load("", func() []string {
		return []string{envPrefix + "NATS_URLS=nats://u:secret@a:4222", envPrefix + "WEBHOOK_ALLOWED_NETWORKS=10.1.2.3/16"}
	})
	require.NoError(t, err)
	require.True(t, c.NATS.Configured())
	require.NotContains(t, c.NATS.URLs.String(), "secret")
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, c.Webhook.Networks())
	require.False(t, Default().NATS.Configured())
}
