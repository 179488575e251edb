package webhooks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// secretPrefix marks a secret of Standard Webhooks; base64 of the key follows.
const secretPrefix = "whsec_"

// secretPurpose names the tenants' secrets that those of endpoints are derived from.
const secretPurpose = "webhook"

// secretLabel is the label that an endpoint's secret is derived with. It never changes:
// another label would change all secrets.
func secretLabel(subscription event.ID, number int) string {
	return "backbone/webhook/v1|" + subscription.String() + "|" + strconv.Itoa(number)
}

// secretText is a secret as the owner of the endpoint gets it, once.
func secretText(key []byte) string { return secretPrefix + base64.StdEncoding.EncodeToString(key) }

// sign makes the header webhook-signature: one signature for each key.
func sign(keys [][]byte, id string, at time.Time, body []byte) string {
	out := make([]string, len(keys))
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%d.", id, at.Unix())
		mac.Write(body)
		out[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(out, " ")
}

// body encodes a message; data must be JSON.
func body(kind string, at time.Time, data []byte) []byte {
	name, err := json.Marshal(kind)
	if err != nil {
		name = []byte(`""`) // a text always encodes
	}
	out := append([]byte(`{"type":`), name...)
	out = append(out, `,"timestamp":"`...)
	out = at.UTC().AppendFormat(out, time.RFC3339Nano)
	out = append(out, `","data":`...)
	out = append(out, data...)
	return append(out, '}')
}
