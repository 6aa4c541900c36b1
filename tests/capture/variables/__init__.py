"""The variables engine, without torch, on every Python from 3.11 on."""
