"""The inventory as a web service: start as many as you like, none keeps any state.

INVENTORY=shop uvicorn inventory.web:app
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

import amcast
from inventory.shop import Shop


@asynccontextmanager
async def connected(app: FastAPI) -> AsyncIterator[None]:
    async with amcast.connect(os.environ["INVENTORY"], deadline=10.0) as client:
        app.state.shop = Shop(client)
        yield


app = FastAPI(title="Inventory", lifespan=connected)


def shop_of(request: Request) -> Shop:
    shop: Shop = request.app.state.shop
    return shop


@app.exception_handler(amcast.MulticastFailed)
async def not_done(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": f"nothing was done: {error}"}, 503)  # it may be repeated


@app.post("/stock")
async def stock(items: dict[str, int], request: Request) -> dict[str, int]:
    await shop_of(request).stock(items)
    return await shop_of(request).look(*items)


@app.get("/stock/{item}")
async def look(item: str, request: Request) -> dict[str, int]:
    return await shop_of(request).look(item)


@app.post("/orders")
async def order(items: dict[str, int], request: Request) -> dict[str, bool]:
    return {"taken": await shop_of(request).order(items)}
