package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func flights(now func() time.Time) Server {
	return Server{
		ID:    "flights",
		title: "Flights (demo)",
		instructions: "Books made-up flights and reports made-up weather for a destination. " +
			"Dates are calendar days in UTC, written YYYY-MM-DD.",
		tools: []tool{bookFlight(now), weather()},
	}
}

type booking struct {
	Booking   string `json:"booking"`
	Flight    string `json:"flight"`
	To        string `json:"to"`
	Date      string `json:"date"`
	Departure string `json:"departure"`
	Status    string `json:"status"`
}

func bookFlight(now func() time.Time) tool {
	const name = "book_flight"
	return tool{
		def: mcp.Tool{
			Name:  name,
			Title: "Book a flight",
			Description: "Book one seat to a destination on a given day. Use it when the user has settled on both. " +
				"The day must lie in the future. Booking the same destination and day again returns the same booking.",
			Annotations: adding(true),
			InputSchema: json.RawMessage(`{"type":"object","properties":{` +
				`"to":{"type":"string","minLength":1,"maxLength":200,"description":"Destination city or airport, for example Lisbon."},` +
				`"date":{"type":"string","format":"date","description":"Day of departure, YYYY-MM-DD, in the future."}},` +
				`"required":["to","date"],"additionalProperties":false}`),
			OutputSchema: json.RawMessage(`{"type":"object","properties":{` +
				`"booking":{"type":"string"},"flight":{"type":"string"},"to":{"type":"string"},"date":{"type":"string","format":"date"},` +
				`"departure":{"type":"string","description":"Local time, HH:MM."},"status":{"type":"string","enum":["confirmed"]}},` +
				`"required":["booking","flight","to","date","departure","status"]}`),
		},
		run: func(_ context.Context, _ *mcp.CallToolRequest, args *arguments) (*mcp.CallToolResult, error) {
			to := args.text("to", "a city or airport, as a string")
			date := args.text("date", "a day in the future, as a string in the form YYYY-MM-DD")
			if text := args.complain(name); text != "" {
				return refusal(text)
			}
			if text := checkDate(date, now().UTC()); text != "" {
				return refusal(text)
			}
			n := digest(strings.ToLower(to), date)
			return answer(booking{
				Booking:   fmt.Sprintf("BK-%06X", n%(1<<24)),
				Flight:    fmt.Sprintf("HG %d", 100+n%900),
				To:        to,
				Date:      date,
				Departure: fmt.Sprintf("%02d:%02d", 6+n%16, n/16%12*5),
				Status:    "confirmed",
			})
		},
	}
}

// checkDate says what is wrong with a departure date, or "".
func checkDate(date string, now time.Time) string {
	today := now.Truncate(24 * time.Hour)
	first := today.AddDate(0, 0, 1)
	day, err := time.Parse(time.DateOnly, date)
	var fact string
	switch {
	case err != nil:
		fact = fmt.Sprintf("No flight was booked: the argument date is %s, which is not a day in the form YYYY-MM-DD.", shorten(date))
	case day.Before(first):
		fact = fmt.Sprintf("No flight was booked: the argument date is %s, which is not in the future.", date)
	default:
		return ""
	}
	return sentences(fact,
		fmt.Sprintf("Today is %s (UTC).", today.Format(time.DateOnly)),
		fmt.Sprintf("Valid dates are %s and later.", first.Format(time.DateOnly)),
		"Call book_flight again with a valid date; if it is unclear which day the user means, ask.")
}

type conditions struct {
	Location    string  `json:"location"`
	Temperature float64 `json:"temperature"`
	Conditions  string  `json:"conditions"`
	Humidity    int     `json:"humidity"`
}

func weather() tool {
	const name = "get_weather_data"
	return tool{
		def: mcp.Tool{
			Name:  name,
			Title: "Weather data",
			Description: "Get the present weather at a place: temperature, conditions and humidity. " +
				"Use it when the user asks about the weather at a destination. The data is made up, and the same for a place every time.",
			Annotations: readOnly(),
			InputSchema: json.RawMessage(`{"type":"object","properties":{` +
				`"location":{"type":"string","minLength":1,"maxLength":200,"description":"City name, for example Oslo."}},` +
				`"required":["location"],"additionalProperties":false}`),
			OutputSchema: json.RawMessage(`{"type":"object","properties":{` +
				`"location":{"type":"string"},` +
				`"temperature":{"type":"number","description":"Degrees Celsius."},` +
				`"conditions":{"type":"string"},` +
				`"humidity":{"type":"number","minimum":0,"maximum":100,"description":"Relative humidity in percent."}},` +
				`"required":["location","temperature","conditions","humidity"]}`),
		},
		run: func(_ context.Context, _ *mcp.CallToolRequest, args *arguments) (*mcp.CallToolResult, error) {
			location := args.text("location", "the name of a city, as a string")
			if text := args.complain(name); text != "" {
				return refusal(text)
			}
			n := digest(strings.ToLower(location))
			skies := []string{"clear", "partly cloudy", "overcast", "light rain", "rain", "fog", "snow showers"}
			temperature := float64(int(n%400)-80) / 10 // -8.0 to 31.9
			sky := skies[n/400%uint64(len(skies))]
			if sky == "snow showers" && temperature > 2 {
				sky = "rain"
			}
			return answer(conditions{Location: location, Temperature: temperature, Conditions: sky, Humidity: int(30 + n/4096%66)})
		},
	}
}

// digest turns texts into a number that is the same on every run.
func digest(texts ...string) uint64 {
	h := fnv.New64a()
	for _, t := range texts {
		_, _ = h.Write([]byte(t + "\x00"))
	}
	return h.Sum64()
}
