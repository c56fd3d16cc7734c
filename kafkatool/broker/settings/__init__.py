"""What a broker is told: server.properties, protocol versions, listeners, and configs that change while it runs."""
